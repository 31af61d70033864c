//! The volumes.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::IntoResponse;
use sanwire_server::{JobStatus, Request, VolumeStatus};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Changed, ForceQuery, Made, Tagged};
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Json, Path, Query};
use crate::management::Terms;
use crate::page::{Page, PageQuery};
use crate::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list_volumes, add_volume))
        .routes(routes!(volume, change_volume, remove_volume))
        .routes(routes!(eject_volume))
        .routes(routes!(load_volume))
}

/// A new volume.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewVolume {
    /// What clients call it.
    name: String,
    /// Where its blocks are: `ram:SIZE`, `file:PATH`, the absolute path of a block device, and what else `sanwire serve --help` names.
    store: String,
    /// The other keys of a volume in the configuration, like `size` or `readonly`.
    #[serde(default)]
    options: BTreeMap<String, OptionValue>,
    /// The iSCSI target that gets it as its next logical unit; without it, a target of its own.
    target: Option<String>,
    /// Whether it becomes another volume than it was, under an identity that no client knows.
    #[serde(default)]
    renew: bool,
    /// Whether what is there is taken for the volume that was served from it before, though it does not look so.
    #[serde(default)]
    adopt: bool,
}

/// The value of a key of a volume.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
enum OptionValue {
    /// Whether the key stands there.
    Flag(bool),
    /// A number.
    Number(u64),
    /// A text, like `10G`.
    Text(String),
}

impl NewVolume {
    /// In the form of one line, which has no way to write a comma within a value.
    fn text(&self) -> Result<String, Problem> {
        let check = |text: &str| match text.contains(',') || text.chars().any(char::is_control) {
            true => {
                Err(Problem::new("volume-text-invalid", "no name, store or option has a comma or a control character"))
            }
            false => Ok(()),
        };
        check(&self.name)?;
        check(&self.store)?;
        if self.name.contains('=') {
            return Err(Problem::new("volume-text-invalid", "the name of a volume has no '='"));
        }
        let mut text = format!("{}={}", self.name, self.store);
        for (key, value) in &self.options {
            let value = match value {
                OptionValue::Flag(false) => continue,
                OptionValue::Flag(true) => String::new(),
                OptionValue::Number(number) => format!("={number}"),
                OptionValue::Text(value) => format!("={value}"),
            };
            check(key)?;
            check(&value)?;
            text += &format!(",{key}{value}");
        }
        Ok(text)
    }
}

/// A change of a volume: one at a time.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(min_properties = 1, max_properties = 1)]
struct VolumeChange {
    /// Its new length, like `20G`: never less than it has.
    size: Option<String>,
    /// How its packets are guarded over HyperSCSI: `none`, `hash`, `aes-128-gcm`, `aes-256-gcm` or `chacha20-poly1305`.
    security: Option<String>,
    /// Its HyperSCSI number.
    lun: Option<u16>,
    /// Whether its content is neither deleted nor rolled back.
    protected: Option<bool>,
}

/// Another disc.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Disc {
    /// What is to be the disc, as the store of a volume; without it, the medium that was there.
    store: Option<String>,
}

/// The volumes
///
/// By their numbers. The ETag of a volume is its revision.
#[utoipa::path(get, path = "/volumes", tag = "volumes", params(PageQuery), responses((status = 200, description = "The volumes.", body = Page<VolumeStatus>)))]
async fn list_volumes(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<impl IntoResponse, Problem> {
    let status = app.status(&caller).await?;
    Ok(axum::Json(query.cut(status.volumes, |volume| volume.lun)?))
}

/// Serve one more volume
///
/// It names a path of the host, so it takes the role administrator.
#[utoipa::path(post, path = "/volumes", tag = "volumes", request_body = NewVolume,
    params(("If-Match" = Option<String>, Header, description = "Only if `collections.volumes` of the server is still this, in quotes.")),
    responses(
        (status = 201, description = "It is served.", body = Changed),
        (status = 202, description = "It goes on as a job.", body = JobStatus),
    ))]
async fn add_volume(
    State(app): State<Arc<App>>,
    caller: Caller,
    terms: Terms,
    Json(volume): Json<NewVolume>,
) -> Result<Made, Problem> {
    let text = volume.text()?;
    let NewVolume { name, target, renew, adopt, .. } = volume;
    let request = Request::AddVolume { volume: text, target, renew, adopt };
    Ok(Made::resource(app.change(&caller, request, terms).await?, "volumes", &name))
}

/// A volume
#[utoipa::path(get, path = "/volumes/{volume}", tag = "volumes", params(("volume" = String, Path, description = "Its name.")), responses((status = 200, description = "The volume.", body = VolumeStatus)))]
async fn volume(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<impl IntoResponse, Problem> {
    let volume = app.volume(&caller, &name).await?;
    Ok(Tagged(volume.revision, volume))
}

/// Change a volume
///
/// One property at a time, so that nothing is done in part.
#[utoipa::path(patch, path = "/volumes/{volume}", tag = "volumes", request_body = VolumeChange,
    params(
        ("volume" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the volume still has this ETag."),
        ForceQuery,
    ),
    responses(
        (status = 200, description = "It was changed.", body = Changed),
        (status = 202, description = "It goes on as a job.", body = JobStatus),
    ))]
async fn change_volume(
    State(app): State<Arc<App>>,
    caller: Caller,
    terms: Terms,
    Path(name): Path<String>,
    Query(ForceQuery { force }): Query<ForceQuery>,
    Json(change): Json<VolumeChange>,
) -> Result<Made, Problem> {
    let request = match change {
        VolumeChange { size: Some(size), security: None, lun: None, protected: None } => {
            Request::ResizeVolume { name, size }
        }
        VolumeChange { size: None, security: Some(security), lun: None, protected: None } => {
            Request::SetVolume { name, security: Some(security), protected: None }
        }
        VolumeChange { size: None, security: None, lun: None, protected: Some(protected) } => {
            Request::SetVolume { name, security: None, protected: Some(protected) }
        }
        VolumeChange { size: None, security: None, lun, protected: None } if lun.is_some() => {
            Request::MapVolume { name, lun, target: None, force }
        }
        _ => return Err(Problem::invalid("give one of size, security, lun and protected")),
    };
    app.change(&caller, request, terms).await.map(Made::changed)
}

/// Serve a volume no longer
///
/// Its content stays where it is.
#[utoipa::path(delete, path = "/volumes/{volume}", tag = "volumes",
    params(
        ("volume" = String, Path, description = "Its name."),
        ("If-Match" = Option<String>, Header, description = "Only if the volume still has this ETag."),
        ForceQuery,
    ),
    responses(
        (status = 200, description = "It is not served any more.", body = Changed),
        (status = 202, description = "It goes on as a job.", body = JobStatus),
    ))]
async fn remove_volume(
    State(app): State<Arc<App>>,
    caller: Caller,
    terms: Terms,
    Path(name): Path<String>,
    Query(ForceQuery { force }): Query<ForceQuery>,
) -> Result<Made, Problem> {
    app.change(&caller, Request::RemoveVolume { name, force }, terms).await.map(Made::changed)
}

/// Take the medium out of a drive or a removable volume
#[utoipa::path(post, path = "/volumes/{volume}/eject", tag = "volumes",
    params(("volume" = String, Path, description = "Its name."), ForceQuery),
    responses((status = 200, description = "It is out.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn eject_volume(
    State(app): State<Arc<App>>,
    caller: Caller,
    terms: Terms,
    Path(name): Path<String>,
    Query(ForceQuery { force }): Query<ForceQuery>,
) -> Result<Made, Problem> {
    app.change(&caller, Request::EjectVolume { name, force }, terms).await.map(Made::changed)
}

/// Put the medium back, or another disc into a drive
#[utoipa::path(post, path = "/volumes/{volume}/load", tag = "volumes", request_body = Disc,
    params(("volume" = String, Path, description = "Its name.")),
    responses((status = 200, description = "It is in.", body = Changed), (status = 202, description = "It goes on as a job.", body = JobStatus)))]
async fn load_volume(
    State(app): State<Arc<App>>,
    caller: Caller,
    terms: Terms,
    Path(name): Path<String>,
    Json(Disc { store }): Json<Disc>,
) -> Result<Made, Problem> {
    app.change(&caller, Request::LoadVolume { name, store }, terms).await.map(Made::changed)
}

impl App {
    async fn volume(&self, caller: &Caller, name: &str) -> Result<VolumeStatus, Problem> {
        let volume = self.status(caller).await?.volumes.into_iter().find(|volume| volume.name == name);
        volume.ok_or_else(|| Problem::new("volume-unknown", "no volume of this name is served"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> Result<String, Problem> {
        serde_json::from_str::<NewVolume>(json).unwrap().text()
    }

    #[test]
    fn a_new_volume_is_written_as_one_line() {
        let json = r#"{"name":"a","store":"file:/x=y","options":{"size":"10G","readonly":true,"removable":false,"block":4096}}"#;
        assert_eq!(text(json).unwrap(), "a=file:/x=y,block=4096,readonly,size=10G");
    }

    #[test]
    fn nothing_in_a_new_volume_becomes_another_key() {
        for json in [
            r#"{"name":"a=ram:1G,x","store":"ram:1G"}"#,
            r#"{"name":"a=b","store":"ram:1G"}"#,
            r#"{"name":"a","store":"ram:1G,readonly"}"#,
            r#"{"name":"a","store":"ram:1G","options":{"size":"1,readonly"}}"#,
            r#"{"name":"a","store":"ram:1G","options":{"size=1,readonly":true}}"#,
            r#"{"name":"a","store":"ram:1G\n"}"#,
        ] {
            assert_eq!(text(json).unwrap_err().code, "volume-text-invalid", "{json}");
        }
    }
}
