int elsewhere();
int f() { return elsewhere(); }
