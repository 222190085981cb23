//! The laboratory of incrowd: experiments that compare private bandits, figures of them, and audits
//! that attack the real code.
//!
//! Nothing here is in the product: coins come from seeds.

pub mod audit;
pub mod experiment;
pub mod figures;
