int f(int hidden_size) {
	const int n = hidden_sise * 2;
  return missing(n)
}
