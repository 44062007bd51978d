"""The benchmark of devices: counts of messages in a compiled program."""

from benchmarks import messages

PROGRAM = """
  %all-reduce.39 = (f32[2,3]{1,0}, f64[2]{0}) all-reduce(%a, %b), metadata={op_name="jit(f)/while/body/jvp(transpose(jvp()))/x"}
  ROOT %all-reduce.4 = pred[] all-reduce(%c), metadata={op_name="jit(f)/vmap()/while"}
  %all-gather = s32[8]{0} all-gather-start(%d), metadata={op_name="jit(f)/gather"}
  %add.1 = f32[2]{0} add(%all-reduce.39, %all-gather)
  all-reduce.9 = f32[99]{0} all-reduce(x), metadata={op_name="jit(step)/cond/branch_0_fun/add"}
"""  # noqa: E501


def test_collectives_are_read_from_a_program():
    assert messages.parsed(PROGRAM) == [(40, True, True), (1, False, True), (32, False, False)]


def test_flops_per_term_and_seconds_by_hand():
    few = messages.Messages(8, 2, 3, 1000, 0, 0, 1, 100, flops=50.0)
    many = few._replace(window=16, flops=90.0)
    # 40 more for the 4 terms more of each device.
    assert messages.flops_per_term(few, many) == 10
    # 10 of one term a device and 10 of the rest; 3 + 4 sums of 4 messages, 1,400 bytes twice.
    assert few.seconds(10.0, 4, 4, 1.0, 100.0, 0.5) == (20.0, 7 * 4 * 0.5 + 28.0)
    assert few.seconds(10.0, 4, 1, 1.0, 100.0, 0.5) == (50.0, 0.0)
