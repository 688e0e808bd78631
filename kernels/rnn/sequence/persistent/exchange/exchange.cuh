// How the blocks of a set exchange a step's results.
#pragma once

#include "rnn/sequence/persistent/exchange/cluster.cuh"
#include "rnn/sequence/persistent/exchange/grid.cuh"

namespace lltm_jit {

template <typename Shape, int kArrays>
using Exchange = std::conditional_t<Shape::kShape.grid, GridExchange<Shape, kArrays>,
                                    ClusterExchange<Shape, kArrays>>;

}  // namespace lltm_jit
