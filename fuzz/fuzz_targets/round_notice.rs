#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| incrowd_fuzz::round_notice(data));
