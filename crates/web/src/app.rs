//! What all requests share, and the router that leads to their handlers.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::middleware;
use axum::routing::get;
use sanwire_server::{Answer, Request};
use utoipa_axum::router::OpenApiRouter;

use crate::accounts::Accounts;
use crate::caller::Caller;
use crate::counts::{Counts, count};
use crate::events::News;
use crate::guard::guard;
use crate::management::{Desk, Management, Outcome, Terms};
use crate::openapi;
use crate::operations::Operations;
use crate::problem::Problem;
use crate::routes;

/// What all requests share.
pub(crate) struct App {
    pub(crate) management: Management,
    /// By these names the server is called, beside its addresses.
    pub(crate) hosts: Vec<String>,
    /// The API's own description, as JSON.
    pub(crate) document: Bytes,
    pub(crate) operations: Operations,
    pub(crate) news: News,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) counts: Counts,
}

impl App {
    pub(crate) fn new(
        desk: Arc<dyn Desk>,
        hosts: Vec<String>,
        accounts: Arc<Accounts>,
    ) -> Result<Arc<Self>, serde_json::Error> {
        let document = Bytes::from(openapi::document()?);
        let operations = Operations::of(&serde_json::from_slice(&document)?);
        let news = News::new(Arc::clone(&desk));
        let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect();
        let (management, counts) = (Management::new(desk), Counts::default());
        Ok(Arc::new(App { management, hosts, document, operations, news, accounts, counts }))
    }

    /// Asks the server in the name of a caller, who may do it now, with the whole request read. What is told of the answer is made in the
    /// same thread, where that keeps nobody waiting: a list may be long.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        caller: &Caller,
        request: Request,
        tell: impl FnOnce(Answer) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        caller.again(&self.accounts)?.check(&request)?;
        let (accounts, again) = (Arc::clone(&self.accounts), caller.clone());
        let admit = move |request: Request| again.again(&accounts)?.check(&request).map(|()| request);
        self.management.look(&caller.asker, request, admit, tell).await
    }

    /// Changes something in the name of a caller.
    pub(crate) async fn change(&self, caller: &Caller, request: Request, terms: Terms) -> Result<Outcome, Problem> {
        caller.again(&self.accounts)?.check(&request)?;
        let (accounts, again) = (Arc::clone(&self.accounts), caller.clone());
        let admit = move |request: Request| {
            let caller = again.again(&accounts)?;
            caller.check(&request)?;
            Ok(match caller.scope() {
                Some(pools) => Request::InPools { pools, request: Box::new(request) },
                None => request,
            })
        };
        self.management.change(&caller.asker, request, terms, admit).await
    }
}

/// All resources, with their descriptions.
pub(crate) fn api() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(openapi::base()).merge(routes::health::router()).nest("/api/v1", routes::router())
}

pub(crate) fn router(app: Arc<App>) -> Router {
    let (router, _) = api().split_for_parts();
    router
        // Where tools look for it.
        .route("/openapi.json", get(routes::health::openapi))
        .merge(routes::first_page::router())
        .fallback(async || Problem::new("resource-unknown", "there is no such resource: see /api/v1/openapi.json"))
        .method_not_allowed_fallback(async || {
            Problem::new("method-unknown", "this resource knows no such method: see /api/v1/openapi.json")
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&app), guard))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), count))
        .with_state(app)
}
