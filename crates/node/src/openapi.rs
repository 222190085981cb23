//! The description of a role's API, generated from its handlers.

use std::sync::Arc;

use axum::{Router, http::header, response::IntoResponse, routing::get};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        Components, Info, OpenApi,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use crate::{
    http::Guard,
    problem::ProblemBody,
    tokens::{Role, Tokens},
};

/// A body of bytes.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[allow(dead_code)]
pub(crate) struct Binary(Vec<u8>);

/// Adds what handlers do not say, and serves the description at `/openapi.json`.
pub(crate) fn described(router: Router, mut api: OpenApi, tokens: &Arc<Tokens>) -> Router {
    api.info = Info::new("incrowd", env!("CARGO_PKG_VERSION"));
    let components = api.components.get_or_insert_with(Components::new);
    components.schemas.insert(ProblemBody::name().into_owned(), ProblemBody::schema());
    for role in Role::ALL {
        let description = format!("A token of the role {}", role.name());
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(description))
            .build();
        components.add_security_scheme(role.name(), SecurityScheme::Http(scheme));
    }
    let text = api.to_json().unwrap_or_default();
    let serve = async move || ([(header::CONTENT_TYPE, "application/json")], text).into_response();
    router.merge(Guard::everyone(tokens).protect(Router::new().route("/openapi.json", get(serve))))
}
