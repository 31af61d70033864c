//! Whether what is changed can be noted.

use crate::config::ServerConfig;
use crate::error::StartError;
use crate::manage::AuditLog;

/// Sees whether lines can be written to the audit log. Where an administrator wants it, it must be so; elsewhere it is told when it is not.
///
/// # Errors
/// [`StartError::Audit`].
pub(super) fn check_audit_log(config: &ServerConfig) -> Result<(), StartError> {
    if let Some(path) = &config.audit_log {
        return AuditLog::check(path).map_err(|source| StartError::Audit { path: path.clone(), source });
    }
    // It begins with the first line.
    if let Some(path) = config.audit_file().filter(|path| path.exists())
        && let Err(error) = AuditLog::check(&path)
    {
        let path = path.display();
        tracing::warn!(
            "{path}, the audit log, cannot be written: {error}; what is changed is not noted there until it can be"
        );
    }
    Ok(())
}
