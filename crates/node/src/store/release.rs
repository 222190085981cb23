/// A release as it is served: signed once, when its batch was full.
pub use incrowd_envelope::Signed as SignedRelease;
