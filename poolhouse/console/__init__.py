"""`poolhouse console`: a web page on this machine that shows and changes the objects of Poolhouse in a cluster.

The process uses the user's kubeconfig and rights, and listens on loopback only. `poolhouse portal` serves the same
pages in the cluster, for each user with a client of their own.

Begin with `app`, which has the routes. `server` runs them on loopback. `cluster_state` keeps small views of the objects
by list and watch. `pages` collects what a page shows. The modules of the pages (`overview`, `pool_page`, ...) turn
views into the values of a template, without requests. `acts` has the table of everything that a user can change.
`access` decides which requests of a browser are answered. `web` has what the console and the portal do alike.
"""
