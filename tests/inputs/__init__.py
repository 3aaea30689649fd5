"""One fuzzer for each reader of what others may have written: damaged or made by an enemy, it may only be refused."""
