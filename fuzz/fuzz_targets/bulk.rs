#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| incrowd_fuzz::bulk(data));
