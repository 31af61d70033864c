mod control;
mod inventory;
mod properties;
mod provisioning;
mod transfer;
