// A small frame for the engine's own tests.
//
//     TEST(the_sum_of_nothing_is_zero) { CHECK(sum({}) == 0); }
//
// A FAULT is not run unless it is asked for by name: it shows that the sanitizers, or CHECK, see it.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace obax::tests {

struct Test {
    const char* name;
    void (*run)();
    bool fault;
};

inline std::vector<Test>& all_tests() {
    static std::vector<Test> tests;
    return tests;
}

struct Register {
    Register(const char* name, void (*run)(), bool fault) {
        all_tests().push_back({name, run, fault});
    }
};

// The compiler knows nothing of this value.
template <class T>
T hidden(T value) {
    volatile T unknown = value;
    return unknown;
}

}  // namespace obax::tests

#define OBAX_TEST(name, fault)                                           \
    static void name();                                                  \
    static const obax::tests::Register register_##name(#name, name, fault); \
    static void name()
#define TEST(name) OBAX_TEST(name, false)
#define FAULT(name) OBAX_TEST(name, true)
#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition))                                                                    \
            throw std::runtime_error(std::string(__FILE__ ":") + std::to_string(__LINE__) + \
                                     ": " #condition);                                       \
    } while (false)
