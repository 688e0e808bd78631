// See type_traits.
#pragma once

#include <cstdint>
