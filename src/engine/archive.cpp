#include "archive.hpp"

#include <algorithm>

namespace obax {

const NamedArray& Archive::find(const std::string& name) const {
    const auto found = source_->find(begin_ + name);
    if (found == source_->end()) throw std::invalid_argument(begin_ + name + " is missing in the file.");
    return found->second;
}

void Archive::check(const std::string& name, View values, Rule rule) const {
    const bool fine = std::all_of(values.begin(), values.end(), [rule](double value) {
        if (rule == Rule::missing_allowed) return !std::isinf(value);
        return std::isfinite(value) && (rule == Rule::finite || value >= 0.0);
    });
    require(fine, name, rule == Rule::not_negative ? "numbers >= 0" : "finite numbers");
}

void Archive::array(const std::string& name, Span values, const std::vector<std::size_t>& shape,
                    Rule rule) {
    if (!reading()) {
        (*target_)[begin_ + name] = {shape, Vector(values.begin(), values.end())};
        return;
    }
    const NamedArray& found = find(name);
    require(found.shape == shape && found.values.size() == values.size(), name,
            "of the shape that this model has");
    check(name, found.values, rule);
    std::copy(found.values.begin(), found.values.end(), values.begin());
}

void Archive::list(const std::string& name, Vector& values, std::size_t most, Rule rule) {
    if (!reading()) {
        (*target_)[begin_ + name] = {{values.size()}, values};
        return;
    }
    const NamedArray& found = find(name);
    require(found.shape.size() == 1 && found.shape[0] == found.values.size() &&
                found.values.size() <= most,
            name, "a list of the length that this model has");
    check(name, found.values, rule);
    values = found.values;
}

}  // namespace obax
