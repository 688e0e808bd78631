int f() { return 2; }
