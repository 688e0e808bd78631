#if __cplusplus < 202002L
#error C++20 or later compatible compiler is required to use PyTorch.
#endif
