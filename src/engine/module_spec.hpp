// Specs as Python has them.
#pragma once

#include <nanobind/nanobind.h>

#include "spec.hpp"

namespace obax {

void bind_spec(nanobind::module_& m);

}  // namespace obax
