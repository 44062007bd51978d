// Run the engine's own tests: all of them, or those that are named.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "check.hpp"

using obax::tests::hidden;

FAULT(a_read_beyond_the_end) {
    const std::vector<double> values(8, 1.0);
    const double* first = values.data();
    CHECK(first[hidden(8)] != 3.0);
}

FAULT(a_read_after_the_end_of_life) {
    auto owner = std::make_unique<double>(1.0);
    const double* value = hidden(owner.get());
    owner.reset();
    CHECK(*value != 3.0);
}

FAULT(a_sum_that_overflows) {
    CHECK(hidden(std::numeric_limits<int>::max()) + hidden(1) != 3);
}

FAULT(a_check_that_fails) { CHECK(hidden(1) == 2); }

int main(int count, char** words) {
    const std::vector<std::string> named(words + 1, words + count);
    int ran = 0, failed = 0;
    for (const auto& test : obax::tests::all_tests()) {
        const bool asked = std::find(named.begin(), named.end(), test.name) != named.end();
        if (named.empty() ? test.fault : !asked) continue;
        ++ran;
        try {
            test.run();
        } catch (const std::exception& error) {
            ++failed;
            std::printf("FAILED %s: %s\n", test.name, error.what());
        }
    }
    std::printf("%d tests, %d failed\n", ran, failed);
    return failed || ran < static_cast<int>(named.size());
}
