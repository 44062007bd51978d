// Named arrays: how a state leaves the engine and comes back, checked.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "matrix.hpp"

namespace obax {

struct NamedArray {
    std::vector<std::size_t> shape;
    Vector values;
};

using NamedArrays = std::map<std::string, NamedArray>;

// What the numbers of a part may be.
enum class Rule { finite, not_negative, missing_allowed };

// One pass over all parts of a state: writing copies them out, reading checks and copies them in.
// Each class describes its parts once, in a method `visit`, which serves both.
class Archive {
  public:
    static Archive writer(NamedArrays& arrays) { return Archive(&arrays, nullptr); }
    static Archive reader(const NamedArrays& arrays) { return Archive(nullptr, &arrays); }

    bool reading() const { return source_ != nullptr; }
    // The same archive for parts whose names begin so.
    Archive within(const std::string& begin) const {
        Archive part(*this);
        part.begin_ += begin;
        return part;
    }

    void array(const std::string& name, Span values, const std::vector<std::size_t>& shape,
               Rule rule = Rule::finite);
    void matrix(const std::string& name, Matrix& matrix, Rule rule = Rule::finite) {
        array(name, matrix.flat(), {matrix.rows(), matrix.columns()}, rule);
    }
    void number(const std::string& name, double& value, Rule rule = Rule::finite) {
        array(name, Span(&value, 1), {}, rule);
    }
    // A vector whose length is that of the file, up to a limit.
    void list(const std::string& name, Vector& values, std::size_t most, Rule rule = Rule::finite);

    // Throws, when reading, unless the condition holds.
    void require(bool condition, const std::string& name, const std::string& expected) const {
        if (reading() && !condition)
            throw std::invalid_argument(begin_ + name + " must be " + expected + "; the file is damaged.");
    }
    void require_whole(double value, double low, double high, const std::string& name) const {
        require(value >= low && value <= high && value == std::floor(value), name,
                "a whole number within its limits");
    }

  private:
    Archive(NamedArrays* target, const NamedArrays* source) : target_(target), source_(source) {}
    const NamedArray& find(const std::string& name) const;
    void check(const std::string& name, View values, Rule rule) const;

    std::string begin_;
    NamedArrays* target_;
    const NamedArrays* source_;
};

}  // namespace obax
