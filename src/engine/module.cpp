// The Python interface of the engine: `obax._engine`.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "conformal.hpp"
#include "model.hpp"
#include "module_model.hpp"
#include "module_pool.hpp"
#include "module_spec.hpp"
#include "sparse.hpp"

#ifndef OBAX_SOURCES
#define OBAX_SOURCES ""
#endif

namespace nb = nanobind;

NB_MODULE(_engine, m) {
    m.doc() = "Streaming models: see src/engine.";
    // Objects that live as long as the process are no leaks.
    nb::set_leak_warnings(false);
    // What the sources were: obax._support.native compares it with what they are.
    m.attr("sources") = OBAX_SOURCES;
    m.attr("REJECTED") = static_cast<int>(obax::Status::rejected);
    m.attr("LEARNED") = static_cast<int>(obax::Status::learned);
    m.attr("EXTREME") = static_cast<int>(obax::Status::extreme);
    m.attr("UNREADABLE") = obax::UNREADABLE;
    m.attr("LARGEST") = obax::LARGEST;
    m.attr("WAVES") = obax::WAVES;
    m.attr("MULTIPLIED") = obax::MULTIPLIED;
    m.attr("MOST_FULL") = obax::MOST_FULL;
    m.attr("MOST_COVERAGES") = obax::MOST_COVERAGES;
    nb::dict bounds;
    for (std::size_t i = 0; i < obax::HYPERPARAMETERS; ++i)
        bounds[obax::HYPERPARAMETER_NAMES[i]] =
            nb::make_tuple(obax::BOUNDS[i].first, obax::BOUNDS[i].second);
    m.attr("BOUNDS") = bounds;
    obax::bind_spec(m);
    obax::bind_model(m);
    obax::bind_pool(m);
}
