use std::path::Path;

use incrowd_device::FeatureMap;
use incrowd_protocol::{Model, Prior};
use incrowd_sim::public_data::first_model;
use serde::Deserialize;

use super::EvaluateError;

/// A model in a file: the model itself, or the signed document that a bandit serves.
///
/// The signature is not checked: whoever evaluates a file chose it.
pub fn parse_model(path: &Path, bytes: &[u8]) -> Result<Model, EvaluateError> {
    #[derive(Deserialize)]
    struct Signed {
        body: String,
    }
    let model = match serde_json::from_slice::<Signed>(bytes) {
        Ok(signed) => serde_json::from_str(&signed.body),
        Err(_) => serde_json::from_slice(bytes),
    };
    model.map_err(|error| EvaluateError::File {
        path: path.to_path_buf(),
        reason: error.to_string(),
        expected: "a published model (JSON)",
    })
}

/// The model that a prior in a file gives before the first report, over the features of its map.
pub fn parse_prior(path: &Path, bytes: &[u8], map: &FeatureMap) -> Result<Model, EvaluateError> {
    let wrong = |reason: String| EvaluateError::File {
        path: path.to_path_buf(),
        reason,
        expected: "a prior of `incrowd fit` (JSON)",
    };
    let prior: Prior = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
    first_model(map, prior).map_err(|error| wrong(error.to_string()))
}
