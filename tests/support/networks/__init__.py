"""Networks of several formats for tests of conversions: small, growing, planted, trained and with states."""
