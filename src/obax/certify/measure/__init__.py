"""What is measured for a certificate: evidence for assumptions, regret beside bound, growth."""
