"""Who may sign in, who was turned away, and what may be used.

- `identity`: users, keys and policies of the store's records, joined with `auth`
- `renewed_hashes`: password hashes of another broker, replaced by ones of our own
- `rights_watch`: a right that is withdrawn reaches who is connected
- `disconnects`: all connections of a user, closed at every gateway
- `limit_records`: limits that were set at run time, joined with those of the settings
- `size_records`: what the sizes of topics let publishers have
- `tenant_book`: the tenants there are, for whoever asks
- `tenant_records`: the record of tenants that were made, changed or removed at run time
- `tenant_removal`: what a tenant has goes
- `will_rights`: whether a will that is due may still be published
- `certificates`: the certificate that this process shows
- `live_certificates`: certificates that are read again
- `tls_failures`: TLS handshakes that come to nothing: counted and logged
- `turned_away`: processes that the cluster's own listeners have turned away: logged
"""
