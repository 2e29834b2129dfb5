"""`poolhouse portal`: web pages in the cluster for users without a kubeconfig: their VMs, and a console.

A user signs in at an OpenID Connect provider. Each request to the API server then has the user's own ID token, or
impersonates the user. The portal decides about no right: the API server does.

Begin with `app`, which has the routes. `provider` signs users in, `session` keeps who has signed in, in cookies that
only the portal can read. `users` makes the client of the Kubernetes API that has a user's rights, and no other. `work`
reads and writes claims with it, and `my_vms` turns them into the values of the page. `consoles` decides which consoles
are open for whom, and `console_pages` has their routes. `access` decides which requests of a browser are answered.
"""
