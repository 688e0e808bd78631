// A unit of compilation: its files instantiate the same templates.
#include "core/products/matrices.cpp"
#include "rnn/sequence/cpu/backward.cpp"
#include "rnn/sequence/cpu/forward.cpp"
