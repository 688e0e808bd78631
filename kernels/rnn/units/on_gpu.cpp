// A unit of compilation, for the reason in calls.cpp.
#include "rnn/sequence/plan/run.cpp"
#include "rnn/sequence/side_by_side/layers.cpp"
#include "rnn/sequence/walk/run.cpp"
