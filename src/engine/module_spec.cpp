#include "module_spec.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>

#include "model.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace obax {

namespace {

// A word of a fixed list as its enumerator.
template <class Enum, std::size_t N>
Enum parse(const std::string& word, const std::array<const char*, N>& words, const char* name) {
    for (std::size_t i = 0; i < N; ++i)
        if (word == words[i]) return static_cast<Enum>(i);
    std::string expected;
    for (std::size_t i = 0; i < N; ++i) expected += (i ? ", '" : "'") + std::string(words[i]) + "'";
    throw std::invalid_argument(std::string(name) + " must be one of " + expected + ", but got '" +
                                word + "'.");
}

constexpr std::array<const char*, 3> LOSSES = {"logistic", "squared", "huber"};
constexpr std::array<const char*, 3> BALANCES = {"none", "leader", "all"};
constexpr std::array<const char*, 3> EXPANSIONS = {"linear", "fourier", "interactions"};

using Frozen = std::vector<std::tuple<std::string, double, double, double>>;
using Rates = std::vector<std::tuple<std::string, double>>;
using Trees = std::vector<std::tuple<std::string, double, bool>>;
using Doubles2 = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Doubles1 = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

struct SharedWaves {
    std::shared_ptr<const Waves> waves;
};

void set_field(Spec& spec, const std::string& name, nb::handle value) {
    if (name == "loss") spec.loss = parse<LossKind>(nb::cast<std::string>(value), LOSSES, "loss");
    else if (name == "features") spec.features = nb::cast<std::size_t>(value);
    else if (name == "classes") spec.classes = nb::cast<std::size_t>(value);
    else if (name == "sparse") spec.sparse = nb::cast<bool>(value);
    else if (name == "learned") {
        spec.learned.fill(false);
        for (const auto& word : nb::cast<std::vector<std::string>>(value))
            spec.learned[parse<Hyperparameter>(word, HYPERPARAMETER_NAMES, "learned")] = true;
    }
    else if (name == "per_feature") spec.per_feature = nb::cast<bool>(value);
    else if (name == "balance")
        spec.balance = parse<Balance>(nb::cast<std::string>(value), BALANCES, "balance");
    else if (name == "frozen") {
        spec.frozen.clear();
        for (const auto& [word, penalty, memory, inertia] : nb::cast<Frozen>(value))
            spec.frozen.push_back({word, penalty, memory, inertia});
    }
    else if (name == "rates") {
        spec.gradient_steps.clear();
        for (const auto& [word, rate] : nb::cast<Rates>(value))
            spec.gradient_steps.push_back({word, rate});
    }
    else if (name == "expansion")
        spec.expansion = parse<Expansion>(nb::cast<std::string>(value), EXPANSIONS, "expansion");
    else if (name == "lags") spec.lags = nb::cast<std::size_t>(value);
    else if (name == "starts")
        std::tie(spec.penalty, spec.memory, spec.inertia) =
            nb::cast<std::tuple<double, double, double>>(value);
    else if (name == "step_size") spec.step_size = nb::cast<double>(value);
    else if (name == "fading") spec.fading = nb::cast<double>(value);
    else if (name == "scale_memory") spec.scale_memory = nb::cast<double>(value);
    else if (name == "delta") spec.delta = nb::cast<double>(value);
    else if (name == "share") spec.share = nb::cast<double>(value);
    else if (name == "history_points") spec.history_points = nb::cast<std::size_t>(value);
    else if (name == "intervals") spec.intervals = nb::cast<bool>(value);
    else if (name == "blocks") spec.blocks = nb::cast<std::vector<std::string>>(value);
    else if (name == "trees") {
        spec.trees.clear();
        for (const auto& [word, memory, corrects] : nb::cast<Trees>(value))
            spec.trees.push_back({word, memory, corrects});
    }
    else if (name == "tree_bytes") spec.tree_bytes = nb::cast<double>(value);
    else if (name == "restless") spec.restless = nb::cast<bool>(value);
    else if (name == "seed") spec.seed = nb::cast<std::size_t>(value);
    else if (name == "waves") spec.waves = nb::cast<SharedWaves&>(value).waves;
    else throw std::invalid_argument("a spec has no field '" + name + "'.");
}

void set_fields(Spec& spec, const nb::kwargs& fields) {
    for (const auto& [name, value] : fields) {
        const auto word = nb::cast<std::string>(name);
        try {
            set_field(spec, word, value);
        } catch (const nb::cast_error&) {
            throw std::invalid_argument(word + " has the wrong type.");
        }
    }
    spec.check();
}

nb::tuple learned_words(const Spec& spec) {
    nb::list words;
    for (std::size_t i = 0; i < HYPERPARAMETERS; ++i)
        if (spec.learned[i]) words.append(HYPERPARAMETER_NAMES[i]);
    return nb::tuple(words);
}

nb::dict spans_of(const Spec& spec) {
    nb::dict spans;
    for (std::size_t i = 0; i < HYPERPARAMETERS; ++i) {
        const Range range = spec.span(static_cast<Hyperparameter>(i));
        spans[HYPERPARAMETER_NAMES[i]] = nb::make_tuple(range.begin, range.end);
    }
    return spans;
}

nb::tuple names_of(const Spec& spec) {
    nb::list names;
    for (const auto& name : spec.all_names()) names.append(name);
    return nb::tuple(names);
}

}  // namespace

void bind_spec(nb::module_& m) {
    nb::class_<SharedWaves>(m, "Waves", "Directions and phases of the random Fourier features.")
        .def("__init__", [](SharedWaves* self, Doubles2 directions, Doubles1 phases) {
            auto waves = std::make_shared<Waves>();
            waves->directions = Matrix(directions.shape(0), directions.shape(1));
            std::copy_n(directions.data(), directions.size(), waves->directions.data());
            waves->phases.assign(phases.data(), phases.data() + phases.size());
            new (self) SharedWaves{std::move(waves)};
        });
    nb::class_<Spec>(m, "Spec", "Sizes and options of a model.")
        .def("__init__",
             [](Spec* self, const nb::kwargs& fields) {
                 Spec spec;
                 spec.learned = {true, true, true, false, false, false};
                 set_fields(spec, fields);
                 new (self) Spec(std::move(spec));
             })
        .def("replace",
             [](const Spec& self, const nb::kwargs& fields) {
                 Spec spec = self;
                 set_fields(spec, fields);
                 return spec;
             })
        .def_prop_ro("loss", [](const Spec& s) { return LOSSES[static_cast<int>(s.loss)]; })
        .def_ro("features", &Spec::features)
        .def_ro("classes", &Spec::classes)
        .def_ro("sparse", &Spec::sparse)
        .def_prop_ro("learned", &learned_words)
        .def_ro("per_feature", &Spec::per_feature)
        .def_prop_ro("balance", [](const Spec& s) { return BALANCES[static_cast<int>(s.balance)]; })
        .def_prop_ro("expansion",
                     [](const Spec& s) { return EXPANSIONS[static_cast<int>(s.expansion)]; })
        .def_ro("lags", &Spec::lags)
        .def_ro("step_size", &Spec::step_size)
        .def_ro("fading", &Spec::fading)
        .def_ro("scale_memory", &Spec::scale_memory)
        .def_ro("delta", &Spec::delta)
        .def_ro("share", &Spec::share)
        .def_ro("history_points", &Spec::history_points)
        .def_ro("intervals", &Spec::intervals)
        .def_prop_ro("slots", &Spec::slots)
        .def_prop_ro("outputs", &Spec::outputs)
        .def_prop_ro("inputs", &Spec::inputs)
        .def_prop_ro("members", &names_of)
        .def_prop_ro("width", &Spec::width)
        .def_prop_ro("trail", &Spec::trail)
        .def_prop_ro("spans", &spans_of)
        .def_prop_ro("bytes", [](const Spec& s) {
            s.check();
            Spec sized = s;
            if (s.sparse) sized.features = 0;
            return Model::bytes(Plan(sized), s.features);
        });
}

}  // namespace obax
