//! Real ranks as processes or threads for tests.
