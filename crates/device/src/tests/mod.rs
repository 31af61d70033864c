mod control;
mod copy;
mod inventory;
mod port_groups;
mod properties;
mod provisioning;
mod swap;
mod transfer;
