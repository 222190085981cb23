//! The Gaussian mechanism, and how often a binary tree uses a leaf. Proof:
//! `docs/privacy-proofs.md`, sections 8.1 and 8.2.

pub(super) use incrowd_privacy::gaussian::epsilon_upper;

/// How many noisy nodes a person of the worst leaf is in, when the prefixes after 1, ..., `leaves`
/// - 1 leaves are released.
///
/// A prefix of t leaves is the sum of one node for each binary digit of t. The node of 2^k leaves
/// that contains leaf x (from zero) is used if and only if digit k of x is zero and the node ends
/// by `leaves` - 1; so there are at most as many as digits of `leaves` - 1, and leaf 0 is in that
/// many. After the last leaf there is nobody left to choose for, so that prefix is not released.
pub fn tree_levels(leaves: u32) -> u32 {
    u32::BITS - leaves.saturating_sub(1).leading_zeros()
}
