#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tenure_simulation::fuzz::cluster(data));
