// A unit of compilation, for the reason in calls.cpp.
#include "rnn/sequence/all_steps/states.cpp"
#include "rnn/sequence/cells.cpp"
#include "rnn/sequence/formula.cpp"
#include "rnn/sequence/operators.cpp"
#include "rnn/sequence/padding/gates.cpp"
#include "rnn/sequence/padding/operands.cpp"
#include "rnn/sequence/recurrences.cpp"
