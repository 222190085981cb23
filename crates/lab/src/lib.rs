//! The laboratory of incrowd: experiments that compare private bandits, figures of them, audits that
//! attack the real code, and evaluation of policies on logged data.
//!
//! Nothing here is in the product: coins come from seeds.

pub mod audit;
pub mod evaluate;
pub mod experiment;
pub mod figures;
