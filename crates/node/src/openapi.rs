//! The description of a role's API, generated from its handlers.

use axum::{Router, http::header, response::IntoResponse, routing::get};
use utoipa::{
    ToSchema,
    openapi::{
        Components, Info, OpenApi,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use crate::tokens::Role;

/// A body of bytes.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[allow(dead_code)]
pub(crate) struct Binary(Vec<u8>);

/// Adds what handlers do not say, and serves the description at `/openapi.json`.
pub(crate) fn described(router: Router, mut api: OpenApi) -> Router {
    api.info = Info::new("incrowd", env!("CARGO_PKG_VERSION"));
    let components = api.components.get_or_insert_with(Components::new);
    for role in Role::ALL {
        let description = format!("The token of a {}", role.name());
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(description))
            .build();
        components.add_security_scheme(role.name(), SecurityScheme::Http(scheme));
    }
    let text = api.to_json().unwrap_or_default();
    let serve = async move || ([(header::CONTENT_TYPE, "application/json")], text).into_response();
    router.route("/openapi.json", get(serve))
}
