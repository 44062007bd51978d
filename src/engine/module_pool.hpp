// Pools as Python has them.
#pragma once

#include <nanobind/nanobind.h>

namespace obax {

void bind_pool(nanobind::module_& m);

}  // namespace obax
