"""The console in a real Chromium, with the real API server and a simulated stack.

The screenshots of docs/console.md are made by `make screenshots`, which sets POOLHOUSE_SCREENSHOTS.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controllers.pool.vm_snapshots import VM_SNAPSHOTS
from poolhouse.runtime.resource import VMS
from poolhouse.stack.paths import StackPaths
from tests.builders import manifest, vm_spec
from tests.console.browser import CHROMIUM, DRIVER, RULES_OF_COLOURS, Browser, chromium, running_console
from tests.portal.running import SHOP, Place
from tests.tokens import kubeconfig_with

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="Debian's chromium and chromium-driver are missing")
ROOT = Path(__file__).resolve().parent.parent.parent
IMAGES = ROOT / "docs" / "img" / "console"
SCREENSHOTS = os.environ.get("POOLHOUSE_SCREENSHOTS")
MAX_PICTURE_BYTES = 150_000


@pytest.fixture(scope="module")
def paths(simulated_stack: Place) -> StackPaths:
    return simulated_stack.paths


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def browser(paths: StackPaths, driver: Any) -> Iterator[Browser]:
    with running_console(paths.kubeconfig) as (root, _):
        yield Browser(driver, root)


@pytest.fixture(scope="module")
def shop(paths: StackPaths, browser: Browser) -> Iterator[Browser]:
    """A namespace with one object of each kind, which the overview shows without a reload. It is as before afterwards,
    because other files use it, too."""
    browser.open("/")
    browser.reads("There is no object of Poolhouse here yet")
    kubectl(paths, "label", "namespace", SHOP, "hpc-workloads=true")
    for name in ("pool", "replicaset", "warm-pool", "claim", "migration-policies"):
        kubectl(paths, "apply", "-n", SHOP, "-f", str(ROOT / "examples" / f"{name}.yaml"))
    browser.reads("vpool/my-vm-pool", "vmirs/web", "vmwp/my-warm-pool", "vmclaim/my-claim", "migpol/databases")
    browser.until(lambda: browser.text("a.tile.healthy").startswith("6"), browser.text)
    yield browser
    browser.driver.get("about:blank")
    kubectl(paths, "delete", "vmclaim,vmwp,vmpool,vmirs,vm,migpol", "--all", "-n", SHOP)
    kubectl(paths, "delete", "namespace", "later", "--ignore-not-found")
    kubectl(paths, "label", "namespace", SHOP, "hpc-workloads-")


def kubectl(paths: StackPaths, *arguments: str, document: object = None) -> str:
    text = yaml.safe_dump(document) if document is not None else None
    command = ["kubectl", "--kubeconfig", str(paths.kubeconfig), *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(paths: StackPaths, name: str, path: str) -> str:
    return kubectl(paths, "get", name, "-n", SHOP, "-o", f"jsonpath={{{path}}}")


def vms(paths: StackPaths, output: str = "name") -> list[str]:
    return kubectl(paths, "get", "vm", "-n", SHOP, "-o", output, "-l", "poolhouse.dev/pool=my-vm-pool").split()


def ready_vms(paths: StackPaths) -> int:
    return vms(paths, "jsonpath={.items[*].status.ready}").count("true")


PAGES = {
    "overview": ("/", "Healthy"),
    "pool": (f"/vpool/{SHOP}/my-vm-pool", "all 3 VMs have the template"),
    "replica-set": (f"/vmirs/{SHOP}/web", "of 2 VMIs are ready"),
    "vm": (f"/vm/{SHOP}/my-vm-pool-1", "it has the pool's template"),
    "hardware": (f"/hardware/{SHOP}/my-vm-pool-1?with=my-vm-pool-2", "firmware uuid"),
    "warm-pools": ("/warm", "my-claim"),
    "warm-pool": (f"/vmwp/{SHOP}/my-warm-pool", "Wait p99"),
    "claim": (f"/vmclaim/{SHOP}/my-claim", "It has a VM"),
    "sizing": (f"/sizing/{SHOP}/my-warm-pool", "Sizing advice"),
    "policies": ("/policies", "Order of precedence"),
    "fleet": ("/fleet", "Who set the hardware"),
    "policy": ("/migpol/-/computing", "KubeVirt uses all its settings"),
    "change": (f"/change?kind=vpool&namespace={SHOP}&name=my-vm-pool", "YAML"),
    "absent": (f"/vpool/{SHOP}/absent", "There is no vpool absent in namespace shop."),
}


DARK = ("overview", "pool")
"""pages with a picture in dark colours too"""
LATER = ("change", "rollout", "confirm")
"""pictures of the tests of acts"""
STREAMS = ("serial-console", "screen")
"""pictures of tests/guests_in_browser/test_console.py"""
PICTURES = (
    *(name for name in PAGES if name not in ("absent", "fleet", *LATER)),
    *(f"{name}-dark" for name in DARK),
    *LATER,
    *STREAMS,
)
"""the pictures of docs/console.md"""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible_and_breaks_no_rule(shop: Browser, name: str) -> None:
    path, text = PAGES[name]
    shop.open(path)
    shop.reads(text)
    for scheme in ("light", "dark"):
        shop.colours(scheme)
        if name not in LATER:
            shot(shop, name if scheme == "light" else f"{name}-dark")
        assert shop.violations(*(RULES_OF_COLOURS if scheme == "dark" else ())) == []
    shop.colours("light")
    assert shop.misfits() == {}
    assert "This page:" not in shop.text()
    # The browser itself reports the 404 of a missing object.
    assert [each for each in shop.errors() if "404" not in each or name != "absent"] == []


def test_long_names_fit(paths: StackPaths, shop: Browser) -> None:
    namespace, name = "n" * 63, "pool-" + "x" * 40
    (pool,) = (each for each in yaml.safe_load_all((ROOT / "examples" / "pool.yaml").read_text()))
    pool = {**pool, "metadata": {"name": name}, "spec": {**pool["spec"], "replicas": 1}}
    kubectl(paths, "create", "namespace", namespace)
    kubectl(paths, "apply", "-n", namespace, "-f", "-", document=pool)
    for path in ("/", f"/vpool/{namespace}/{name}", f"/vm/{namespace}/{name}-1", f"/vpool/{namespace}/absent"):
        shop.open(path)
        shop.reads(namespace)
        assert shop.misfits() == {}, path
    shop.open("/")
    shop.reads(name)
    # The message of each row is in sight.
    assert (
        shop.driver.execute_script("const s = document.querySelector('.scroll'); return s.scrollWidth - s.clientWidth")
        <= 0
    )
    kubectl(paths, "delete", "namespace", namespace, "--wait=false")
    kubectl(paths, "delete", "vmpool", name, "-n", namespace)


def test_the_keyboard_reaches_an_act(shop: Browser) -> None:
    shop.open(f"/vpool/{SHOP}/my-vm-pool")
    shop.reads("Scale")
    shop.tab_to("Skip to the content")
    shop.tab_to("Scale…")
    shop.press("enter")
    shop.until(lambda: shop.focused() == "replicas", shop.focused)
    shop.press("escape")
    shop.until(lambda: not shop.text("form:popover-open"), shop.text)


def test_a_pool_is_scaled(paths: StackPaths, shop: Browser) -> None:
    shop.open(f"/vpool/{SHOP}/my-vm-pool")
    assert shop.act("Scale", replicas="4") == (
        f"kubectl scale virtualmachinepool.kubevirt.io/my-vm-pool --replicas=4 -n {SHOP}"
    )
    shop.reads("my-vm-pool is scaled to 4", "my-vm-pool-4")
    shop.act("Scale", replicas="3")
    # It asks first.
    shop.reads("my-vm-pool deletes 1 VM.", "-  replicas: 4", "+  replicas: 3", "Delete my-vm-pool-")
    shop.until(lambda: shop.focused() == "Cancel", shop.focused)
    shot(shop, "confirm")
    assert read(paths, "vpool/my-vm-pool", ".spec.replicas") == "4"
    shop.click("button.danger", "Scale")
    shop.reads("my-vm-pool is scaled to 3")
    shop.driver.refresh()  # which neither repeats the act nor its message
    shop.reads("my-vm-pool-1")
    assert "is scaled to 3" not in shop.text()
    shop.driver.back()  # to the question, which asks about the present state
    shop.reads("Scale vpool/my-vm-pool?")
    shop.click("a.button", "Cancel")
    assert read(paths, "vpool/my-vm-pool", ".spec.replicas") == "3"


def test_a_pool_is_paused_and_resumed(paths: StackPaths, shop: Browser) -> None:
    shop.open(f"/vpool/{SHOP}/my-vm-pool")
    assert shop.act("Pause") == f"kubectl poolhouse rollout pause my-vm-pool -n {SHOP}"
    shop.reads("my-vm-pool is paused", "Resume")
    assert read(paths, "vpool/my-vm-pool", ".spec.paused") == "true"
    shop.act("Resume")
    shop.reads("my-vm-pool is resumed", "Pause")
    assert read(paths, "vpool/my-vm-pool", ".spec.paused") == "false"


def test_a_vm_is_paused_and_goes_on(paths: StackPaths, shop: Browser) -> None:
    vm = read(paths, "vm", ".items[0].metadata.name")
    shop.open(f"/vm/{SHOP}/{vm}")
    assert shop.act("Pause") == f"kubectl virt pause vm {vm} -n {SHOP}"
    shop.reads(f"{vm} is paused", "Unpause")
    assert read(paths, f"vm/{vm}", ".status.printableStatus") == "Paused"
    shop.act("Unpause")
    shop.reads(f"{vm} goes on", "Pause")


@pytest.mark.parametrize("label", ["Serial console", "Screen"])
def test_a_refused_stream_says_why_and_can_be_tried_again(paths: StackPaths, shop: Browser, label: str) -> None:
    vm = read(paths, "vm", ".items[0].metadata.name")
    shop.errors()  # forgets those of other pages
    shop.open(f"/vm/{SHOP}/{vm}")
    shop.click("main a", label)
    refused = "a simulated VM has no console and no display; start the stack with --engine qemu"
    shop.reads(refused, "Connect again")
    # noVNC writes the reason to the browser's console, too.
    assert [each for each in shop.errors() if refused not in each] == []
    assert shop.violations() == []
    shop.until(lambda: shop.focused() == "Connect again", shop.focused)
    shop.press("enter")
    shop.reads(refused)
    shop.click("main a", f"Back to {vm}")
    shop.reads("Why")


def test_a_snapshot_is_taken_and_restored(paths: StackPaths, shop: Browser) -> None:
    kubectl(paths, "create", "-f", "-", document=manifest(VMS, "alone", vm_spec(), SHOP))
    shop.open(f"/vm/{SHOP}/alone")
    shop.act("Take a snapshot")
    shop.reads("The snapshot alone-", "has begun", "a user, or another program")
    shop.click("[aria-label^='Restore alone-']")
    shop.reads("alone is stopped, and loses what it has written since alone-", '"kind":"VirtualMachineRestore"')
    shop.click("button.danger", "Restore")
    shop.reads("Start it once the restore is complete", "The restore of alone-", "is complete", "Stopped")
    assert shop.violations() == []
    assert read(paths, "vm/alone", ".spec.runStrategy") == "Halted"
    for kind in ("virtualmachinerestores", "virtualmachinesnapshots"):
        kubectl(paths, "delete", kind, "--all", "-n", SHOP)
    kubectl(paths, "delete", "vm/alone", "-n", SHOP)


def test_a_vm_of_a_pool_shows_its_snapshots(paths: StackPaths, shop: Browser) -> None:
    vm = vms(paths)[0].partition("/")[2]
    source = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": vm}
    snapshot = manifest(VM_SNAPSHOTS, "before-friday", {"source": source}, SHOP)
    kubectl(paths, "create", "-f", "-", document=snapshot)
    shop.open(f"/vm/{SHOP}/{vm}")
    shop.reads("Snapshots", "before-friday", "a user, or another program", "rollout undo --restore-snapshots")
    assert shop.all("[aria-label^=Restore]") == []
    kubectl(paths, "delete", "vmsnapshot", "before-friday", "-n", SHOP)


def test_a_vm_is_protected_detached_and_attached(paths: StackPaths, shop: Browser) -> None:
    # Scale-in has deleted any of them, and may still be at it.
    shop.until(lambda: (ready_vms(paths), len(vms(paths))) == (3, 3), lambda: str(vms(paths)))
    vm = vms(paths)[0].partition("/")[2]
    shop.open(f"/vm/{SHOP}/{vm}")
    shop.act("Protect")
    shop.reads("is protected from scale-in", "poolhouse.dev/scale-in is Protect")
    shop.act("Detach")
    shop.reads(f"{vm} is detached from my-vm-pool", "attach puts it back")
    assert read(paths, f"vm/{vm}", ".metadata.ownerReferences") == ""
    # The console asks again if scale-in would delete another VM than it said, such as one that is not ready any more.
    shop.until(lambda: ready_vms(paths) == 4, lambda: str(vms(paths)))
    shop.act("Attach")
    shop.reads(f"if {vm} joins my-vm-pool, scale-in deletes my-vm-pool-")
    shop.click("button.danger", "Attach")
    shop.reads(f"{vm} is attached to my-vm-pool")
    # The pool has made a replacement, and deletes another VM now because this one is protected.
    assert '"controller":true' in read(paths, f"vm/{vm}", ".metadata.ownerReferences")
    shop.until(lambda: len(vms(paths)) == 3, lambda: str(vms(paths)))
    shop.act("End protection")
    shop.reads("is not protected any more")


def test_a_vm_is_claimed_and_released(paths: StackPaths, shop: Browser) -> None:
    shop.open(f"/vmwp/{SHOP}/my-warm-pool")
    command = shop.act("Claim a VM", name="mine", ttl="600")
    assert command == f"kubectl poolhouse claim mine --pool my-warm-pool --ttl 600 -n {SHOP}"
    shop.reads("mine claims a VM of my-warm-pool", "is yours at")
    shop.click(".banner a", "Open it")
    shop.reads("vmclaim/mine")
    shop.open("/warm?claims=mine")
    shop.click("a", "mine")
    shop.reads("It has a VM")  # the claim before may be the one that was handed over
    shop.ask("Release")
    shop.reads("and its disks are deleted.")
    shop.click("button.danger", "Release")
    shop.reads("mine is released", "Released")


def test_an_update_moves_and_is_promoted_aborted_retried_and_undone(paths: StackPaths, shop: Browser) -> None:
    steps = [{"setReplicas": 1}, {"pause": {}}, {"setReplicas": 2}, {"pause": {}}]
    kubectl(
        *(paths, "patch", "vpool/my-vm-pool", "-n", SHOP, "--type", "merge", "-p"),
        json.dumps({"spec": {"updateStrategy": {"proactive": {"steps": steps}}}}),
    )
    shop.open(f"/change?kind=vpool&namespace={SHOP}&name=my-vm-pool")
    shop.edit("128Mi", "-1Mi")
    shop.click("button", "Plan")
    shop.reads("Admission refuses vpool/my-vm-pool", "memory.guest")
    assert shop.is_in_sight("[role=alert]"), "the page begins with its problems"
    shop.edit("-1Mi", "160Mi")
    shop.click("button", "Plan")
    shop.reads(
        "-              guest: 128Mi", "+              guest: 160Mi", "Restart", "the template has changed", "Pause"
    )
    shot(shop, "change")
    shop.driver.refresh()
    shop.reads("Order of actions")
    shop.click("button", "Apply")
    shop.reads("vpool/my-vm-pool is applied", "1 with revision 2")
    shop.until(lambda: "pause until a user promotes" in shop.text(".steps li.now"), shop.text)
    shot(shop, "rollout")
    shop.act("Promote")
    shop.reads("is promoted past step 2 of 4", "2 with revision 2")
    shop.ask("Abort update")
    shop.click("button.danger", "Abort update")
    shop.reads("my-vm-pool returns to its former template", "is aborted", "3 with revision 1")
    shop.act("Retry update")
    shop.reads("my-vm-pool is updated again", "1 with revision 2")
    shop.click("button", "Undo to 1")
    shop.reads(
        "my-vm-pool restarts VMs that KubeVirt cannot change while they run",
        "Then my-vm-pool has the template of revision 1 again.",
        "+              guest: 128Mi",
        "Order of actions",
        "Restart",
    )
    shop.click("button.danger", "Undo")
    shop.reads("my-vm-pool has the template of revision 1 again", "all 3 VMs have the template")
    assert read(paths, "vpool/my-vm-pool", ".spec.template.spec.template.spec.domain.memory.guest") == "128Mi"
    shop.ask("Restart VMs")
    shop.click("button.danger", "Restart VMs")
    shop.reads("my-vm-pool restarts its VMs")


def test_a_change_that_somebody_else_makes_is_not_lost(paths: StackPaths, shop: Browser) -> None:
    shop.open(f"/change?kind=vmirs&namespace={SHOP}&name=web")
    shop.edit("replicas: 2", "replicas: 3")
    shop.click("button", "Plan")
    shop.reads("Order of actions", "Create")
    kubectl(paths, "scale", "vmirs/web", "-n", SHOP, "--replicas=1")
    shop.click("button", "Apply")
    shop.reads("An object or the text has changed since this plan was made")
    kubectl(paths, "scale", "vmirs/web", "-n", SHOP, "--replicas=2")


def test_a_user_without_rights_sees_what_he_may(paths: StackPaths, shop: Browser, driver: Any, tmp_path: Path) -> None:
    kubectl(paths, "create", "serviceaccount", "viewer", "-n", SHOP)
    reads = "virtualmachinepools.kubevirt.io,virtualmachines.kubevirt.io,virtualmachineinstances.kubevirt.io"
    kubectl(paths, "create", "role", "viewer", "-n", SHOP, "--verb=get,list,watch", f"--resource={reads}")
    kubectl(paths, "create", "rolebinding", "viewer", "-n", SHOP, "--role=viewer", f"--serviceaccount={SHOP}:viewer")
    token = kubectl(paths, "create", "token", "viewer", "-n", SHOP).strip()
    with running_console(kubeconfig_with(token, paths.kubeconfig, tmp_path / "kubeconfig", SHOP)) as (root, _):
        viewer = Browser(driver, root)
        viewer.open("/")
        viewer.reads("namespace shop", "system:serviceaccount:shop:viewer", css="header")
        viewer.reads("my-vm-pool", "Not shown, because you may not list them:", "virtualmachineclaims")
        viewer.open(f"/vpool/{SHOP}/my-vm-pool")
        viewer.reads("my-vm-pool-1", "Events are not shown, because you may not list them.")
        assert set(viewer.disabled(".acts > button")) == {True}
        viewer.open(f"/vm/{SHOP}/my-vm-pool-1")
        viewer.reads("Screen: you may not get virtualmachineinstances/vnc here")
        viewer.open(f"/vnc/{SHOP}/my-vm-pool-1")
        viewer.reads("You may not get virtualmachineinstances/vnc here.")
        viewer.open(f"/vpool/{SHOP}/my-vm-pool")
        viewer.reads("my-vm-pool-1")
        # The API server decides, also about a form that is sent all the same.
        viewer.driver.execute_script("document.querySelector('form[id^=act-pause]').submit()")
        viewer.reads('cannot patch resource "virtualmachinepools"')
        viewer.open(f"/change?kind=vpool&namespace={SHOP}&name=my-vm-pool")
        viewer.edit("replicas: 3", "replicas: 2")
        viewer.click("button", "Plan")
        viewer.reads('cannot patch resource "virtualmachinepools"')


def test_a_foreign_page_cannot_act(paths: StackPaths, shop: Browser) -> None:
    """A form of another origin, with the right address, as after a leak of the token."""
    shop.driver.get("data:text/html,<form method=post><button>go</button></form>")
    script = "document.forms[0].action = arguments[0]; document.forms[0].submit()"
    shop.driver.execute_script(script, f"{shop.root}/act/pause/vpool/{SHOP}/my-vm-pool")
    shop.reads("only a page of the console may change something", css="body")
    shop.driver.get("data:text/html,<p id=p>")
    script = "const s = new WebSocket(arguments[0]); s.onopen = s.onerror = (event) => p.append(event.type)"
    shop.driver.execute_script(script, f"ws{shop.root[4:]}/stream/console/{SHOP}/my-vm-pool-1")
    shop.reads("error", css="#p")
    assert read(paths, "vpool/my-vm-pool", ".spec.paused") == "false"


def test_the_documentation_has_the_pictures() -> None:
    page = (ROOT / "docs" / "console.md").read_text()
    assert [name for name in PICTURES if f"(img/console/{name}.webp)" not in page] == []
    assert sorted(each.name for each in IMAGES.iterdir()) == sorted(f"{name}.webp" for name in PICTURES)
    assert [each.name for each in IMAGES.iterdir() if each.stat().st_size > MAX_PICTURE_BYTES] == []


@pytest.mark.slow
def test_the_api_server_goes_and_comes_back(paths: StackPaths, shop: Browser) -> None:
    shop.open("/")
    shop.reads("my-vm-pool")
    # The supervisor starts it again. The informers try again after pauses of up to half a minute.
    os.kill(process_of(paths, "kube-apiserver"), signal.SIGKILL)
    shop.reads("The API server does not answer.", "my-vm-pool")
    shop.until(lambda: "does not answer" not in shop.text(), shop.text)

    def written(*arguments: str) -> bool:
        """The webhook may still be away for the API server, or the API server for the webhook."""
        try:
            kubectl(paths, *arguments)
        except AssertionError:
            return False
        return True

    for arguments in (
        ("create", "namespace", "later"),
        ("apply", "-n", "later", "-f", str(ROOT / "examples" / "replicaset.yaml")),
    ):
        shop.until(lambda arguments=arguments: written(*arguments), lambda: "nothing can be written")
    shop.reads("later")


def process_of(paths: StackPaths, program: str) -> int:
    """The process of this stack that runs the program."""
    found = subprocess.run(["pgrep", "-f", f"{program}.*{paths.dir}"], capture_output=True, text=True, check=True)
    return int(found.stdout.split()[0])


def shot(browser: Browser, name: str) -> None:
    if SCREENSHOTS and name in PICTURES:
        browser.screenshot(Path(SCREENSHOTS) / f"{name}.webp")
