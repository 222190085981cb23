//! The description of the API, served at `/openapi.json`.

use std::sync::Arc;

use axum::{Router, http::header, response::IntoResponse, routing::get};
use incrowd_protocol::MediaType;
use serde_json::Value;

use crate::{access::Access, http::Guard};

/// Every path of every role. Tests and schemathesis hold it against the handlers.
const DESCRIPTION: &str = include_str!("openapi.json");

/// Serves the operations that have one of these tags.
pub(crate) fn router(tags: &[&str], access: &Arc<Access>) -> Router {
    Guard::everyone(access).protect(serving(&described(tags)))
}

/// The same for a listener that knows no tokens.
pub(crate) fn open_router(tags: &[&str]) -> Router {
    let mut api = described(tags);
    let paths = api["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    for operation in paths.filter_map(Value::as_object_mut).flat_map(|path| path.values_mut()) {
        let Some(operation) = operation.as_object_mut() else { continue };
        operation.remove("security");
        if let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) {
            responses.retain(|status, _| status != "401" && status != "403");
        }
    }
    serving(&api)
}

fn serving(api: &Value) -> Router {
    let text = api.to_string();
    let serve =
        async move || ([(header::CONTENT_TYPE, MediaType::Json.as_str())], text).into_response();
    Router::new().route("/openapi.json", get(serve))
}

fn described(tags: &[&str]) -> Value {
    let mut api: Value =
        serde_json::from_str(DESCRIPTION).expect("invariant: openapi.json is valid JSON");
    api["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    let paths = api["paths"].as_object_mut().expect("invariant: openapi.json has paths");
    paths.retain(|_, path| {
        let mut operations = path.as_object().into_iter().flat_map(|path| path.values());
        operations.any(|operation| tags.iter().any(|tag| operation["tags"][0] == *tag))
    });
    api
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn problems_are_described_under_their_own_status_and_title() {
        let api = described(&["shuffler", "gateway", "bandit", "admin", "health", "relay"]);
        let mut seen = 0;
        let responses = &api["components"]["responses"];
        for path in api["paths"].as_object().unwrap().values() {
            for operation in path.as_object().unwrap().values() {
                for (status, response) in operation["responses"].as_object().unwrap() {
                    let Some(reference) = response["$ref"].as_str() else { continue };
                    let name = reference.rsplit('/').next().unwrap();
                    let description = responses[name]["description"].as_str().unwrap();
                    for problem in name.split('_') {
                        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == problem);
                        let kind = kind.unwrap_or_else(|| panic!("no problem is called {problem}"));
                        assert_eq!(kind.status().to_string(), *status, "{problem}");
                        let told = format!("{} ({problem})", kind.title());
                        assert!(description.contains(&told), "{description}");
                        seen += 1;
                    }
                }
            }
        }
        assert!(seen > 40, "{seen}");
    }
}
