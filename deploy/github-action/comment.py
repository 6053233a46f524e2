"""Write a Markdown file as the one comment of this action on a pull request; standard library only.

Reads GITHUB_API_URL, GITHUB_REPOSITORY, TOKEN, NAME and NUMBER.  A token that may not write, as in pull
requests of forks, is a warning: the report is in the summary of the job, too.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

MOST = 60_000
"""GitHub refuses comments above 65,536 characters."""


def main() -> int:
    mark = f"<!-- {os.environ['NAME']} -->"
    text = Path(sys.argv[1]).read_text("utf-8")
    if len(text) > MOST:
        text = text[:MOST].rpartition("\n")[0] + "\n\n(cut; the whole report is in the artifact)"
    body = f"{mark}\n{text}"
    base = f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}/issues"
    comments = f"{base}/{os.environ['NUMBER']}/comments"
    try:
        own = earlier(comments, mark)
        if own is None:
            request("POST", comments, {"body": body})
        else:
            request("PATCH", f"{base}/comments/{own}", {"body": body})
    except urllib.error.HTTPError as error:
        if error.code not in (401, 403, 404):
            raise
        print(f"::warning::no comment, because the token may not write one (HTTP {error.code})")
    return 0


def earlier(comments: str, mark: str) -> int | None:
    """Return the id of this action's comment, which a bot wrote; None if there is none."""
    page = 1
    while found := request("GET", f"{comments}?per_page=100&page={page}"):
        for one in found:
            if one["body"].startswith(mark) and one["user"]["type"] == "Bot":
                return int(one["id"])
        page += 1
    return None


def request(method: str, url: str, data: object = None) -> Any:  # JSON
    body = None if data is None else json.dumps(data).encode()
    headers = {
        "Authorization": f"Bearer {os.environ['TOKEN']}",
        "Accept": "application/vnd.github+json",
        "Content-Type": "application/json",
    }
    asked = urllib.request.Request(url, body, headers, method=method)
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.loads(answer.read())


if __name__ == "__main__":
    sys.exit(main())
