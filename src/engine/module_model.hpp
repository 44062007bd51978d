// Models as Python has them: names of features and labels of classes beside the engine's model.
#pragma once

#include <nanobind/nanobind.h>

namespace obax {

// The row, or its target, has something that only the general way can read.
inline constexpr int UNREADABLE = 3;

void bind_model(nanobind::module_& m);

}  // namespace obax
