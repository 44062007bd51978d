def check_hypergradient():
    pass


class HypergradientCheck:
    pass
