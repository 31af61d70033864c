mod control;
mod inventory;
mod properties;
mod provisioning;
mod swap;
mod transfer;
