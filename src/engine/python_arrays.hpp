// Arrays of NumPy: views of those that come in, copies of those that go out.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "archive.hpp"
#include "matrix.hpp"

namespace obax {

using Doubles2D = nanobind::ndarray<const double, nanobind::ndim<2>, nanobind::device::cpu>;
using Doubles = nanobind::ndarray<const double, nanobind::ndim<1>, nanobind::device::cpu>;
using Contiguous =
    nanobind::ndarray<const double, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using Integers = nanobind::ndarray<const std::int64_t, nanobind::ndim<1>, nanobind::c_contig,
                                   nanobind::device::cpu>;

// An array that owns its numbers.
template <class T>
nanobind::object own(std::unique_ptr<T[]> values, const std::vector<std::size_t>& shape) {
    T* data = values.get();
    nanobind::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    values.release();
    return nanobind::cast(nanobind::ndarray<nanobind::numpy, T>(data, shape.size(), shape.data(),
                                                                owner));
}

inline nanobind::object to_numpy(View values, const std::vector<std::size_t>& shape) {
    std::unique_ptr<double[]> copy(new double[std::max<std::size_t>(1, values.size())]);
    std::copy(values.begin(), values.end(), copy.get());
    return own(std::move(copy), shape);
}

inline nanobind::object to_numpy_integers(View values) {
    std::unique_ptr<std::int64_t[]> copy(
        new std::int64_t[std::max<std::size_t>(1, values.size())]);
    for (std::size_t i = 0; i < values.size(); ++i)
        copy[i] = static_cast<std::int64_t>(values[i]);
    return own(std::move(copy), {values.size()});
}

inline NamedArray from_numpy(const std::string& name, nanobind::handle value) {
    using Array = nanobind::ndarray<const double, nanobind::c_contig, nanobind::device::cpu>;
    Array array;
    bool fits = false;
    try {
        fits = nanobind::try_cast<Array>(value, array, false);
    } catch (const std::exception&) {
    }
    if (!fits)
        throw std::invalid_argument(name +
                                    " must be an array of float64; the file is damaged.");
    NamedArray found;
    for (std::size_t i = 0; i < array.ndim(); ++i) found.shape.push_back(array.shape(i));
    found.values.assign(array.data(), array.data() + array.size());
    return found;
}

}  // namespace obax
