// A unit of compilation, for the reason in calls.cpp.
#include "rnn/sequence/plan/run.cpp"
#include "rnn/sequence/walk/run.cpp"
