#!/usr/bin/env python3
"""Checks deploy/compose.yaml and deploy/kubernetes against the real schemas, offline. Run by hand; no test needs it.

    python3 -m venv venv && venv/bin/pip install kubernetes-validate pyyaml jsonschema
    venv/bin/python deploy/kubernetes/validate.py [--kubernetes VERSION] [--schema FILE]...

Kubernetes' own schemas (strict: unknown fields are errors) come with the package kubernetes-validate. Each FILE is a
schema for what is not Kubernetes' own: compose-spec.json (github.com/compose-spec/compose-spec, schema/), or a JSON
schema of a CRD whose file name begins with its kind, such as servicemonitor_v1.json (github.com/datreeio/CRDs-catalog,
monitoring.coreos.com/). Without its schema a document is named and not checked, and the exit status is 3: so it is as
typed above, which checks all but compose.yaml and the ServiceMonitor. 1 when a document is wrong, 0 when all are right.

What kustomize does is done here in part: a strategic merge of the overlays' patches into the base. References between
files, to Services, ConfigMaps and labels, are checked too.
"""

import argparse
import copy
import json
import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml

DEPLOY = pathlib.Path(__file__).resolve().parent.parent


def load(path):
    with open(path, encoding="utf-8") as file:
        return [document for document in yaml.safe_load_all(file) if document]


def merged(base, patch):
    """`patch` over `base`; lists of named things by name, as Kubernetes merges containers, env and volumes."""
    if isinstance(base, dict) and isinstance(patch, dict):
        out = copy.deepcopy(base)
        for key, value in patch.items():
            out[key] = merged(base[key], value) if key in base else copy.deepcopy(value)
        return out
    if isinstance(base, list) and isinstance(patch, list) and all("name" in item for item in base + patch):
        out = copy.deepcopy(base)
        names = [item["name"] for item in out]
        for item in patch:
            if item["name"] in names:
                at = names.index(item["name"])
                out[at] = merged(out[at], item)
            else:
                out.append(copy.deepcopy(item))
        return out
    return copy.deepcopy(patch)


def resources(folder):
    """Every document of a kustomization, patched, and the names of the ConfigMaps that it generates."""
    kustomization = load(folder / "kustomization.yaml")[0]
    documents, maps = [], []
    for entry in kustomization.get("resources", []):
        path = (folder / entry).resolve()
        more, names = resources(path) if path.is_dir() else (load(path), [])
        documents += more
        maps += names
    for generator in kustomization.get("configMapGenerator", []):
        for file in generator["files"]:
            assert (folder / file).is_file(), f"{folder}: no {file}"
        maps.append(generator["name"])
    for patch in kustomization.get("patches", []):
        for change in load(folder / patch["path"]):
            found = [d for d in documents if (d["kind"], d["metadata"]["name"]) == (change["kind"], change["metadata"]["name"])]
            assert len(found) == 1, f"{folder}: the patch of {change['metadata']['name']} finds {len(found)}"
            documents[documents.index(found[0])] = merged(found[0], change)
    return documents, maps


def references(documents, maps):
    """What is named and not there."""
    wrong = []
    pods = {d["metadata"]["name"]: d["spec"]["template"] for d in documents if d["kind"] in ("StatefulSet", "Deployment")}
    pod_name = "statefulset.kubernetes.io/pod-name"  # the label that Kubernetes gives each pod of a StatefulSet
    for d in documents:
        if d["kind"] == "StatefulSet":
            for i in range(d["spec"].get("replicas", 0)):
                pod = copy.deepcopy(d["spec"]["template"])
                pod["metadata"]["labels"][pod_name] = f"{d['metadata']['name']}-{i}"
                pods[pod["metadata"]["labels"][pod_name]] = pod
    labels = [p["metadata"]["labels"] for p in pods.values()]
    services = [d for d in documents if d["kind"] == "Service"]

    def selects(selector, things, who):
        if not any(selector.items() <= thing.items() for thing in things):
            wrong.append(f"{who}: nothing has {selector}")

    for document in documents:
        kind, name, spec = document["kind"], document["metadata"]["name"], document.get("spec", {})
        who = f"{kind} {name}"
        if kind == "Service":
            selects(spec["selector"], labels, who)
            ports = {p["name"] for t in pods.values() if spec["selector"].items() <= t["metadata"]["labels"].items()
                     for c in t["spec"]["containers"] for p in c["ports"]}
            wrong += [f"{who}: no port {p['targetPort']}" for p in spec["ports"] if p["targetPort"] not in ports]
        if kind in ("StatefulSet", "Deployment"):
            selects(spec["selector"]["matchLabels"], [spec["template"]["metadata"]["labels"]], who)
            for volume in spec["template"]["spec"].get("volumes", []):
                if "configMap" in volume and volume["configMap"]["name"] not in maps:
                    wrong.append(f"{who}: no ConfigMap {volume['configMap']['name']}")
        if kind == "StatefulSet" and spec["serviceName"] not in [s["metadata"]["name"] for s in services]:
            wrong.append(f"{who}: no Service {spec['serviceName']}")
        if kind == "PodDisruptionBudget":
            selects(spec["selector"]["matchLabels"], labels, who)
        if kind == "NetworkPolicy":
            selects(spec["podSelector"]["matchLabels"], labels, who)
        if kind == "ServiceMonitor":
            selects(spec["selector"]["matchLabels"], [s["metadata"]["labels"] for s in services], who)
        if kind == "HorizontalPodAutoscaler" and spec["scaleTargetRef"]["name"] not in pods:
            wrong.append(f"{who}: no {spec['scaleTargetRef']['name']}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubernetes", default="1.34", help="version whose schemas are taken (default: %(default)s)")
    parser.add_argument("--schema", action="append", default=[], type=pathlib.Path)
    args = parser.parse_args()
    schemas = {path.name.split("_")[0].split(".")[0].lower(): json.loads(path.read_text(encoding="utf-8")) for path in args.schema}
    wrong, unchecked, checked = [], set(), 0

    def by_schema(document, name, who):
        nonlocal checked
        if name not in schemas:
            unchecked.add(who)
            return
        validator = jsonschema.validators.validator_for(schemas[name])(schemas[name])
        wrong.extend(f"{who}: {error.json_path}: {error.message}" for error in validator.iter_errors(document))
        checked += 1

    for overlay in sorted((DEPLOY / "kubernetes" / "overlays").iterdir()):
        documents, maps = resources(overlay)
        wrong += [f"{overlay.name}: {what}" for what in references(documents, maps)]
        for document in documents:
            who = f"{overlay.name}: {document['kind']} {document['metadata']['name']}"
            if "." in document["apiVersion"].split("/")[0] and not document["apiVersion"].split("/")[0].endswith(".k8s.io"):
                by_schema(document, document["kind"].lower(), who)
                continue
            try:
                kubernetes_validate.validate(document, args.kubernetes, strict=True)
                checked += 1
            except kubernetes_validate.ValidationError as error:
                wrong.append(f"{who}: {error.message} at {list(error.path)}")
    by_schema(load(DEPLOY / "compose.yaml")[0], "compose-spec", "compose.yaml")
    for line in wrong:
        print(line, file=sys.stderr)
    for who in sorted(unchecked):
        print(f"not checked, for want of a schema: {who}", file=sys.stderr)
    print(f"{checked} documents checked against Kubernetes {args.kubernetes} and {len(schemas)} other schemas, {len(wrong)} errors")
    return 1 if wrong else 3 if unchecked else 0


if __name__ == "__main__":
    sys.exit(main())
