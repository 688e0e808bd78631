// A unit of compilation, for the reason in calls.cpp.
#include "rnn/sequence/all_steps/states.cpp"
#include "rnn/sequence/calls/cells.cpp"
#include "rnn/sequence/calls/formula.cpp"
#include "rnn/sequence/calls/operators.cpp"
#include "rnn/sequence/calls/recurrences.cpp"
#include "rnn/sequence/padding/gates.cpp"
#include "rnn/sequence/padding/operands.cpp"
